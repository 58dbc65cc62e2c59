// Package packaging has the files that packages install as the first configuration.
package packaging

import _ "embed"

// Config is /etc/blockd/config.toml as packages bring it.
//
//go:embed config.toml
var Config []byte

// Senders is the administrator's own list, with no entry yet.
//
//go:embed senders.txt
var Senders []byte
