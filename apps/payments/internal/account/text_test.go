package account_test

import "fmt"

// text is a value for comparing.
func text(v any) string { return fmt.Sprintf("%+v", v) }
