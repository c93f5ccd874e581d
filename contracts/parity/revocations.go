package parity

func revocationClauses() []clause { return nil }
