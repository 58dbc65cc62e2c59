package config

import (
	"encoding"
	"fmt"
	"reflect"
	"strconv"
	"strings"
)

// wants checks every key of a table that has a tag `want`: words of which it is one, as in
// want:"rcpt|mail", or the bounds of a number, as in want:"1m to 31d"; want:"0s or 1m to 3650d"
// takes a value besides. Keys that are not given are not checked.
func (f *Faults) wants(table string, values reflect.Value) {
	for field, value := range values.Fields() {
		want := field.Tag.Get("want")
		if value.Kind() == reflect.Pointer {
			value = value.Elem()
		}
		if want == "" || !value.IsValid() {
			continue
		}
		key := joinKey(table, tagOf(field))
		if value.Kind() == reflect.String {
			f.oneOf(key, value.String(), strings.Split(want, "|")...)
		} else if !within(value, want) {
			f.add(key, "want %s, have %v", want, value.Interface())
		}
	}
}

// within reports whether a number is within the bounds of a tag.
func within(value reflect.Value, bounds string) bool {
	other, between, or := strings.Cut(bounds, " or ")
	if !or {
		between = bounds
	} else if number(value) == number(parsed(value.Type(), other)) {
		return true
	}
	least, most, _ := strings.Cut(between, " to ")
	n := number(value) // TOML has a NaN, which is not within
	return n >= number(parsed(value.Type(), least)) && n <= number(parsed(value.Type(), most))
}

// parsed reads a bound as a value of the key's own type. The tags are ours: a slip in one is
// found by the first test that loads a configuration.
func parsed(as reflect.Type, text string) reflect.Value {
	value := reflect.New(as)
	var err error
	if u, ok := value.Interface().(encoding.TextUnmarshaler); ok {
		err = u.UnmarshalText([]byte(text))
	} else if f, bad := strconv.ParseFloat(text, 64); bad == nil {
		return reflect.ValueOf(f)
	} else {
		err = bad
	}
	if err != nil {
		panic(fmt.Sprintf("want:%q: %v", text, err))
	}
	return value.Elem()
}

func number(value reflect.Value) float64 {
	if value.CanInt() {
		return float64(value.Int())
	}
	return value.Float()
}
