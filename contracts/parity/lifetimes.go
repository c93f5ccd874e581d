package parity
