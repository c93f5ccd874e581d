package config

// What tests of the redaction need.
const Hidden = hidden

// ShownURL is a URL as it is printed.
func ShownURL(url string) string { return shownURL(url) }
