package parity

func grantClauses() []clause { return nil }
