package msgauth

import (
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"blockd/internal/testkit"
	"blockd/internal/testkit/nameserver"
)

// corpora have signed messages of other verifiers' own tests, each with its licence: keys in
// zone, and in expect what is said of each message there. Those of opendkim are read out of its
// test programs, but for those of SHA-1, and their keys are out of test mode.
var corpora = []string{"opendkim", "dkimpy"}

// corpusDifferences are the messages of which something else is said here, and why.
var corpusDifferences = map[string]string{
	"opendkim test28": partial, "opendkim test29": partial, "opendkim test30": partial, "opendkim test31": partial,
}

const partial = "l=: a part of the body is unsigned, and anybody may have added it"

func TestCorpora(t *testing.T) {
	for _, corpus := range corpora {
		folder := filepath.Join("testdata", corpus)
		r := resolverOf(t, nameserver.Serve(t, vectorZone(string(testkit.Read(t, filepath.Join(folder, "zone"))))))
		for line := range strings.Lines(string(testkit.Read(t, filepath.Join(folder, "expect")))) {
			f := strings.Split(strings.TrimSpace(line), "\t")
			message := strings.ReplaceAll(string(testkit.Read(t, filepath.Join(folder, f[0]+".msg"))), "\n", "\r\n")
			m := testkit.Value(r.Message(t.Context(), netip.Addr{}, strings.NewReader(message)))(t)
			passed := slices.ContainsFunc(m.Signatures, func(s Signature) bool { return s.Proof == Pass })
			why := corpusDifferences[corpus+" "+f[0]]
			if (passed == (f[1] == "pass")) == (why != "") {
				t.Errorf("%s %s, %s: pass %v, want %s: %+v; %s", corpus, f[0], f[2], passed, f[1], m, why)
			}
		}
	}
}
