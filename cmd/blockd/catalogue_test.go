package main

import (
	"encoding/json"
	"io"
	"strings"
	"testing"

	"blockd/internal/testkit"
	"blockd/sources/catalogue"
)

func TestCatalogue(t *testing.T) {
	want := testkit.Value(catalogue.Lists())(t)
	var text, object strings.Builder
	if code := run([]string{"catalogue"}, strings.NewReader(""), &text, io.Discard); code != 0 {
		t.Fatalf("exit %d", code)
	}
	if code := run([]string{"catalogue", "--json"}, strings.NewReader(""), &object, io.Discard); code != 0 {
		t.Fatalf("exit %d", code)
	}
	var got []catalogue.List
	testkit.Must(t, json.Unmarshal([]byte(object.String()), &got))
	if len(got) != len(want) {
		t.Fatalf("%d lists in JSON, want %d", len(got), len(want))
	}
	for i, l := range want {
		testkit.Equal(t, "JSON", got[i], l)
		testkit.Has(t, text.String(), l.Name, l.Licence, l.URL, l.Complaints, l.Judged.String())
	}
}
