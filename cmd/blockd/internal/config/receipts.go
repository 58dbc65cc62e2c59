package config

import "strings"

// Receipts is [receipts]: a page about each refusal, for who was refused (docs/receipts.md).
type Receipts struct {
	// HOST:PORT; "" shuts this door. Who knows a reference reads at /r/REF why a message was refused, and can ask to be let in.
	// refusal.contact, or that of a list, leads there: "https://lists.example.org/r/%ref".
	Listen string `toml:"listen"`
	// The certificate at listen, with its chain, in PEM. A renewed one is taken up by itself. Without one, put a web server with TLS in front.
	TLSCert string `toml:"tls_cert"`
	// Its key, in PEM.
	TLSKey string `toml:"tls_key"`
}

// ReceiptsSuffix is behind the index's path: the folder of the key of references, and of requests.
const ReceiptsSuffix = ".receipts"

// ReceiptsFolder is where they are; "" while the door is shut.
func (c Config) ReceiptsFolder() string {
	if c.Receipts.Listen == "" {
		return ""
	}
	return c.Index.Path + ReceiptsSuffix
}

func (c Config) validateReceipts(f *Faults) {
	f.hostPort("receipts.listen", c.Receipts.Listen)
	f.pair("receipts", c.Receipts.TLSCert, c.Receipts.TLSKey)
	if c.Receipts.Listen != "" && c.HistoryFolder() == None {
		f.add("receipts.listen", `a receipt is about a decision of the history: history.folder must not be "none"`)
	}
}

// receiptWarnings are about a door that nobody hears of.
func (c Config) receiptWarnings() []string {
	if c.Receipts.Listen == "" || strings.Contains(c.Refusal.Contact, "/r/%ref") {
		return nil
	}
	for _, l := range c.Lists {
		if strings.Contains(l.Contact, "/r/%ref") {
			return nil
		}
	}
	return []string{`receipts.listen: no refusal leads there; set refusal.contact = "https://…/r/%ref"`}
}
