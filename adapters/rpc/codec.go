package rpc

import (
	"errors"
	"fmt"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// strictJSON is protobuf's JSON, refusing unknown fields (see the package comment). It replaces
// Connect's codec of the same name.
type strictJSON struct{ name string }

var errNotProto = errors.New("not a protobuf message")

// StrictJSON makes a handler, also one of another service, refuse unknown fields in JSON. It covers both names under
// which Connect looks for JSON.
func StrictJSON() connect.HandlerOption {
	return connect.WithHandlerOptions(
		connect.WithCodec(strictJSON{name: "json"}),
		connect.WithCodec(strictJSON{name: "json; charset=utf-8"}),
	)
}

// Name implements connect.Codec.
func (c strictJSON) Name() string { return c.name }

// Marshal implements connect.Codec.
func (c strictJSON) Marshal(message any) ([]byte, error) { return c.MarshalAppend(nil, message) }

// MarshalAppend saves a copy; Connect uses it where it is there.
func (c strictJSON) MarshalAppend(dst []byte, message any) ([]byte, error) {
	m, ok := message.(proto.Message)
	if !ok {
		return nil, errNotProto
	}
	// "released": false is an answer, and must not be left out as the default.
	data, err := protojson.MarshalOptions{EmitDefaultValues: true}.MarshalAppend(dst, m)
	if err != nil {
		return nil, fmt.Errorf("encode answer: %w", err)
	}
	return data, nil
}

// Unmarshal implements connect.Codec.
func (c strictJSON) Unmarshal(data []byte, message any) error {
	m, ok := message.(proto.Message)
	if !ok {
		return errNotProto
	}
	if len(data) == 0 {
		return errors.New("an empty body is not a JSON object")
	}
	if err := (protojson.UnmarshalOptions{}).Unmarshal(data, m); err != nil {
		return fmt.Errorf("decode request: %w", err)
	}
	return nil
}
