package config

// Health is [health]: a bare door for the probes of container platforms and load balancers (docs/containers.md).
type Health struct {
	// HOST:PORT, such as ":8026"; "" shuts this door. /readyz and /livez answer 200 or 503 to everybody,
	// without a token and without a word about mail or lists.
	Listen string `toml:"listen"`
}

func (h Health) validate(f *Faults) { f.hostPort("health.listen", h.Listen) }
