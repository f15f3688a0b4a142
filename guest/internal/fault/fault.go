// Package fault is the one error type that reaches the host: a code of the closed set in packages/contract, a message for people, and
// details for programs. Any other error is answered as `internal`.
package fault

import "fmt"

type Code string

const (
	InvalidArgument Code = "invalid_argument"
	NotFound        Code = "not_found"
	RouteNotFound   Code = "route_not_found"
	Conflict        Code = "conflict"
	PayloadTooLarge Code = "payload_too_large"
	Internal        Code = "internal"
	Unavailable     Code = "unavailable"
)

// Status is the HTTP status of a code, as errorStatus in packages/contract has it.
func (c Code) Status() int {
	switch c {
	case InvalidArgument:
		return 400
	case NotFound, RouteNotFound:
		return 404
	case Conflict:
		return 409
	case PayloadTooLarge:
		return 413
	case Unavailable:
		return 503
	default:
		return 500
	}
}

type Error struct {
	Code    Code
	Message string
	Details map[string]string
}

func (e *Error) Error() string { return e.Message }

func New(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// With returns the error with one more detail.
func (e *Error) With(key, value string) *Error {
	details := map[string]string{key: value}
	for k, v := range e.Details {
		details[k] = v
	}
	return &Error{Code: e.Code, Message: e.Message, Details: details}
}
