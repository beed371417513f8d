package main

import (
	"encoding/binary"
	"errors"
	"math"
	"unicode/utf8"
)

// A small protobuf codec: a message is a list of numbered fields.
type Fld struct {
	n, wt int
	u     uint64
	b     []byte
}
type Msg struct{ f []Fld }

func (m *Msg) varint(n int, v int64) {
	if v != 0 {
		m.f = append(m.f, Fld{n, 0, uint64(v), nil})
	}
}
func (m *Msg) boolean(n int, v bool) {
	if v {
		m.varint(n, 1)
	}
}
func (m *Msg) raw(n int, b []byte) { m.f = append(m.f, Fld{n, 2, 0, b}) }
func (m *Msg) bytes(n int, b []byte) {
	if len(b) > 0 {
		m.raw(n, b)
	}
}
func (m *Msg) str(n int, s string) { m.bytes(n, []byte(s)) }
func (m *Msg) double(n int, v float64) {
	if v != 0 {
		m.f = append(m.f, Fld{n, 1, math.Float64bits(v), nil})
	}
}
func (m *Msg) packed(n int, vs []int64) {
	var b []byte
	for _, v := range vs {
		b = appendVarint(b, uint64(v))
	}
	m.bytes(n, b)
}
func (m *Msg) sub(n int, s *Msg) { m.raw(n, s.encode()) }

func appendVarint(b []byte, v uint64) []byte {
	for v >= 0x80 {
		b = append(b, byte(v)|0x80)
		v >>= 7
	}
	return append(b, byte(v))
}

func (m *Msg) encode() []byte {
	var b []byte
	for _, f := range m.f {
		b = appendVarint(b, uint64(f.n)<<3|uint64(f.wt))
		switch f.wt {
		case 0:
			b = appendVarint(b, f.u)
		case 1:
			var t [8]byte
			binary.LittleEndian.PutUint64(t[:], f.u)
			b = append(b, t[:]...)
		case 5:
			var t [4]byte
			binary.LittleEndian.PutUint32(t[:], uint32(f.u))
			b = append(b, t[:]...)
		case 2:
			b = appendVarint(b, uint64(len(f.b)))
			b = append(b, f.b...)
		}
	}
	return b
}

var errWire = errors.New("malformed message")

func parse(b []byte) (*Msg, error) {
	m := &Msg{}
	for len(b) > 0 {
		k, n := binary.Uvarint(b)
		if n <= 0 || k>>3 == 0 || k>>3 > 1<<29-1 {
			return m, errWire
		}
		b = b[n:]
		f := Fld{n: int(k >> 3), wt: int(k & 7)}
		switch f.wt {
		case 0:
			v, n := binary.Uvarint(b)
			if n <= 0 {
				return m, errWire
			}
			f.u, b = v, b[n:]
		case 1:
			if len(b) < 8 {
				return m, errWire
			}
			f.u, b = binary.LittleEndian.Uint64(b), b[8:]
		case 5:
			if len(b) < 4 {
				return m, errWire
			}
			f.u, b = uint64(binary.LittleEndian.Uint32(b)), b[4:]
		case 2:
			v, n := binary.Uvarint(b)
			if n <= 0 || v > uint64(len(b)-n) {
				return m, errWire
			}
			f.b, b = b[n:n+int(v)], b[n+int(v):]
		default:
			return m, errWire
		}
		m.f = append(m.f, f)
	}
	return m, nil
}

func (m *Msg) last(n, wt int) *Fld {
	for i := len(m.f) - 1; i >= 0; i-- {
		if m.f[i].n == n && m.f[i].wt == wt {
			return &m.f[i]
		}
	}
	return nil
}
func (m *Msg) getInt(n int) int64 {
	if f := m.last(n, 0); f != nil {
		return int64(f.u)
	}
	return 0
}
func (m *Msg) getInt32(n int) int64 { return int64(int32(m.getInt(n))) }
func (m *Msg) getBytes(n int) []byte {
	if f := m.last(n, 2); f != nil {
		return f.b
	}
	return nil
}
func (m *Msg) getStr(n int) string { return string(m.getBytes(n)) }
func (m *Msg) badText(ns ...int) bool {
	for _, n := range ns {
		if !utf8.Valid(m.getBytes(n)) {
			return true
		}
	}
	return false
}
func (m *Msg) getDouble(n int) float64 {
	if f := m.last(n, 1); f != nil {
		return math.Float64frombits(f.u)
	}
	return 0
}
func (m *Msg) all(n int) [][]byte {
	var r [][]byte
	for _, f := range m.f {
		if f.n == n && f.wt == 2 {
			r = append(r, f.b)
		}
	}
	return r
}
func (m *Msg) getInts(n int) ([]int64, error) {
	var r []int64
	for _, f := range m.f {
		if f.n != n {
			continue
		}
		if f.wt == 0 {
			r = append(r, int64(f.u))
		} else if f.wt == 2 {
			b := f.b
			for len(b) > 0 {
				v, k := binary.Uvarint(b)
				if k <= 0 {
					return nil, errWire
				}
				r, b = append(r, int64(v)), b[k:]
			}
		}
	}
	return r, nil
}

// helpers for faults
func (m *Msg) renum(from, to int) {
	for i := range m.f {
		if m.f[i].n == from {
			m.f[i].n = to
		} else if m.f[i].n == to {
			m.f[i].n = from
		}
	}
}
func (m *Msg) drop(n int) {
	var k []Fld
	for _, f := range m.f {
		if f.n != n {
			k = append(k, f)
		}
	}
	m.f = k
}
func (m *Msg) has(n int) bool {
	for _, f := range m.f {
		if f.n == n {
			return true
		}
	}
	return false
}
