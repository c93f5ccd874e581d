package parity

func failureClauses() []clause { return nil }
