package main

import (
	"bytes"
	"encoding/json"
)

func enc(v interface{}) []byte {
	b, _ := json.Marshal(v)
	return b
}

// dup writes an object with one member a second time.
func dup(m M, member string) []byte {
	b := enc(m)
	return bytes.Replace(b, []byte("{"), []byte("{"+member+","), 1)
}
