package parity

func waitClauses() []clause { return nil }
