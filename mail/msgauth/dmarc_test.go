package msgauth

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"blockd/internal/testkit"
	"blockd/internal/testkit/nameserver"
)

// messages is a folder of messages that others made, with their DNS records and the
// DMARC verdicts of some.
const messages = "dkim/dmarc"

// otherwise are the cases that are aligned, and that DMARC refuses all the same.
var otherwise = map[string]string{
	"DMARC SUBDOMAIN FAIL DKIM STRICT ALIGNMENT": "the domain's policy asks for strict alignment; no policy is read here",
	"DMARC SUBDOMAIN FAIL SPF STRICT ALIGNMENT":  "the domain's policy asks for strict alignment; no policy is read here",
}

func messagesZone(t *testing.T) zone {
	t.Helper()
	data := testkit.Read(t, filepath.Join(testkit.Shared(t, messages), "dns.json"))
	var all []struct {
		Name, Type, Rcode string
		Replies           []string
	}
	testkit.Must(t, json.Unmarshal(data, &all))
	z := zone{}
	for _, r := range all {
		key := strings.ToUpper(r.Type) + " " + strings.ToLower(r.Name)
		switch r.Rcode {
		case "noerror":
			z[key] = r.Replies
			if r.Type == "mx" || r.Type == "ptr" {
				for i := range r.Replies {
					z[key][i] += "."
				}
			}
		case "norec":
			z[key] = []string{}
		case "timeout":
			z[key] = []string{"!SERVFAIL"}
		}
	}
	return z
}

func readLetter(t *testing.T, name string) []byte {
	t.Helper()
	b := testkit.Read(t, filepath.Join(testkit.Shared(t, messages), name))
	return bytes.ReplaceAll(bytes.ReplaceAll(b, []byte("\r\n"), []byte("\n")), []byte("\n"), []byte("\r\n"))
}

func TestMessagesAlignAsTheirVerdictsSay(t *testing.T) {
	r := resolverOf(t, nameserver.Serve(t, messagesZone(t)))
	table := testkit.Read(t, filepath.Join(testkit.Shared(t, messages), "expect.tsv"))
	for i, line := range strings.Split(strings.TrimSpace(string(table)), "\n") {
		c := strings.Split(line, "\t")
		if i == 0 {
			continue // names of the columns
		}
		t.Run(c[0], func(t *testing.T) {
			m := testkit.Value(r.Message(t.Context(), netip.Addr{}, bytes.NewReader(readLetter(t, c[1]))))(t)
			var f SPF
			domain := m.Author // if only signatures can tell
			if client, err := netip.ParseAddr(c[2]); err == nil {
				f = r.SPF(t.Context(), client, "helo.test", c[3])
				domain = f.Domain
			}
			got := m.Aligned(domain, f)
			want := c[5] == "DMARC_POLICY_ALLOW" || otherwise[c[0]] != ""
			testkit.Equal(t, fmt.Sprintf("aligned: %s, verdict %s", got, c[5]), got == Pass, want)
		})
	}
}

// TestMessagesOfOthers has what those messages are made to show of signatures.
func TestMessagesOfOthers(t *testing.T) {
	r := resolverOf(t, nameserver.Serve(t, messagesZone(t)))
	for name, want := range map[string]State{
		"good_dkim_rspamd.eml": Pass, "good_dkim_highsecure.eml": Pass, "pass_none.eml": Pass,
		"bad_dkim_rspamd.eml": No, "bad_dkim_highsecure.eml": No,
		"bad_dkim1.eml": No, "bad_dkim2.eml": No, "bad_dkim3.eml": Unknown, "bad_dkim4.eml": No,
		"dkim_broken_key.eml": No, "dkim_revoked_key.eml": No, "dkim_key_too_long.eml": No, "dkim_key_too_wide.eml": No,
		"arcbad.eml": No,
	} {
		m := testkit.Value(r.Message(t.Context(), netip.Addr{}, bytes.NewReader(readLetter(t, name))))(t)
		proof := No
		for _, s := range m.Signatures {
			proof = proof.or(s.Proof)
		}
		if proof != want {
			t.Errorf("%s: %s, want %s: %+v", name, proof, want, m)
		}
	}
	files, _ := filepath.Glob(filepath.Join(testkit.Shared(t, messages), "*.eml"))
	for _, file := range files {
		name := filepath.Base(file)
		m, err := r.Message(t.Context(), netip.Addr{}, bytes.NewReader(readLetter(t, name)))
		if err != nil || len(m.Signatures) > maxSignatures || m.Author == "" && m.Fault == "" {
			t.Errorf("%s: %+v, %v", name, m, err)
		}
	}
}

// A policy is that of the domain, or of the one that was registered for it; several are none, as other records are, and what
// DNS does not tell is none.
func TestHasDMARC(t *testing.T) {
	s := nameserver.Serve(t, zone{
		"TXT _dmarc.plain.example":       {"v=DMARC1; p=none"},
		"TXT _dmarc.blanks.example":      {"v = DMARC1 ;p=reject"},
		"TXT _dmarc.beside.example":      {"google-site-verification=x", "v=DMARC1; p=quarantine"},
		"TXT _dmarc.twice.example":       {"v=DMARC1; p=none", "v=DMARC1; p=reject"},
		"TXT _dmarc.other.example":       {"v=DMARC2; p=none", "v=spf1 -all", "DMARC1", "p=none; v=DMARC1"},
		"TXT _dmarc.own.plain.example":   {"v=DMARC1; p=reject"},
		"TXT _dmarc.twice.plain.example": {"v=DMARC1; p=none", "v=DMARC1; p=none"},
		"TXT _dmarc.a.b.other.example":   {"v=DMARC1; p=reject"},
		"TXT _dmarc.broken.example":      {"!SERVFAIL"},
	})
	r := resolverOf(t, s)
	for domain, want := range map[string]bool{
		"plain.example": true, "PLAIN.example": true, "deep.below.plain.example": true, "own.plain.example": true, "blanks.example": true, "beside.example": true,
		"twice.example": false, "twice.plain.example": false, "other.example": false, "a.b.other.example": true, "b.other.example": false,
		"none.example": false, "broken.example": false, "example": false, "co.uk": false, "": false, "[192.0.2.1]": false,
	} {
		testkit.Equal(t, domain, r.HasDMARC(t.Context(), netip.Addr{}, domain), want)
	}
}
