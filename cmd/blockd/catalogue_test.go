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
	testkit.MustEqual(t, "exit", run([]string{"catalogue"}, strings.NewReader(""), &text, io.Discard), 0)
	testkit.MustEqual(t, "exit", run([]string{"catalogue", "--json"}, strings.NewReader(""), &object, io.Discard), 0)
	var got []catalogue.List
	testkit.Must(t, json.Unmarshal([]byte(object.String()), &got))
	testkit.MustEqual(t, "lists in JSON", len(got), len(want))
	for i, l := range want {
		testkit.Equal(t, "JSON", got[i], l)
		testkit.Has(t, text.String(), l.Name, l.Licence, l.URL, l.Complaints, l.Judged.String())
	}
}
