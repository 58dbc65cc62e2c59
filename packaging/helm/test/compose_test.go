package chart_test

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"

	"blockd/cmd/blockd/internal/config"
	"blockd/internal/testkit"
)

// What the files of packaging/containers are laid over: the least of the mail servers' own.
const (
	mailserver = "services:\n  mailserver:\n    image: mailserver\n"
	mailcow    = "services:\n  postfix-mailcow:\n    image: postfix\n    networks:\n      mailcow-network:\n" +
		"networks:\n  mailcow-network:\n    driver: bridge\n    ipam:\n      config:\n        - subnet: ${IPV4_NETWORK:-172.22.1}.0/24\n        - subnet: ${IPV6_NETWORK:-fd4d:6169:6c63:6f77::/64}\n"
)

// Every compose file is one by Compose's own reader, and blockd takes the configuration of its container: the mail server reaches it,
// by the name that the mail server's configuration has, from a network that it lets in.
func TestComposeFiles(t *testing.T) {
	for file, tt := range map[string]struct {
		base, service, mail string
		environment         types.Mapping
	}{
		"postfix/compose.yaml":                    {"", "blockd", "postfix", nil},
		"docker-mailserver/compose.override.yaml": {mailserver, "blockd", "mailserver", nil},
		"mailcow/docker-compose.override.yml":     {mailcow, "blockd-mailcow", "postfix-mailcow", types.Mapping{"IPV4_NETWORK": "10.9.8"}},
	} {
		t.Run(file, func(t *testing.T) {
			path := testkit.Value(filepath.Abs(filepath.Join("../../containers", file)))(t)
			details := types.ConfigDetails{WorkingDir: filepath.Dir(path), Environment: tt.environment}
			if tt.base != "" {
				details.ConfigFiles = append(details.ConfigFiles, types.ConfigFile{Filename: "base.yaml", Content: []byte(tt.base)})
			}
			details.ConfigFiles = append(details.ConfigFiles, types.ConfigFile{Filename: path})
			p := testkit.Value(loader.LoadWithContext(context.Background(), details, func(o *loader.Options) { o.SetProjectName("mail", true) }))(t)
			ours, mail := p.Services[tt.service], p.Services[tt.mail]
			if ours.Name == "" || mail.Name == "" {
				t.Fatalf("no service %s or %s", tt.service, tt.mail)
			}
			if name := ours.Name; name != "blockd" && !slices.ContainsFunc(values(ours.Networks), func(n *types.ServiceNetworkConfig) bool {
				return n != nil && slices.Contains(n.Aliases, "blockd")
			}) {
				t.Errorf("the mail server asks blockd:8892, and %s has no such name", name)
			}

			folder := ""
			for _, v := range ours.Volumes {
				if v.Target == "/etc/blockd" && v.ReadOnly {
					folder = v.Source
				}
			}
			for key, value := range ours.Environment {
				t.Setenv(key, *value)
			}
			c, err := config.Load(filepath.Join(folder, "config.toml"))
			if err != nil {
				t.Fatalf("blockd does not take the configuration of its container: %v", err)
			}
			if c.Milter.Listen != ":8892" {
				t.Errorf("the milter listens on %q", c.Milter.Listen)
			}
			for _, l := range c.Lists {
				if _, err := os.Stat(l.Path); err != nil {
					t.Error(err)
				}
			}
			shared := 0
			for name := range ours.Networks {
				if _, both := mail.Networks[name]; !both {
					continue
				}
				shared++
				for _, pool := range p.Networks[name].Ipam.Config {
					subnet := netip.MustParsePrefix(pool.Subnet)
					if !slices.ContainsFunc(config.Networks(c.Milter.AllowFrom), func(n netip.Prefix) bool { return n.Bits() <= subnet.Bits() && n.Contains(subnet.Addr()) }) {
						t.Errorf("blockd turns clients of %s away: it lets in %v", subnet, c.Milter.AllowFrom)
					}
				}
				if len(p.Networks[name].Ipam.Config) == 0 {
					t.Errorf("the network %s has no subnet that blockd could let in", name)
				}
			}
			if shared != 1 {
				t.Errorf("%d networks have both", shared)
			}
			if ours.StopGracePeriod == nil || time.Duration(*ours.StopGracePeriod) < time.Duration(c.SMTP.DrainTimeout)+10*time.Second {
				t.Errorf("grace %v for sessions that have %v", ours.StopGracePeriod, time.Duration(c.SMTP.DrainTimeout))
			}
			if h := ours.HealthCheck; h == nil || strings.Join(h.Test, " ") != "CMD blockd health" || time.Duration(*h.Timeout) <= 5*time.Second {
				t.Errorf("health check: %+v", h)
			}
			if !ours.ReadOnly || !slices.Contains(ours.CapDrop, "ALL") {
				t.Error("the container may more than it needs")
			}
		})
	}
}

func values[K comparable, V any](m map[K]V) (all []V) {
	for _, v := range m {
		all = append(all, v)
	}
	return all
}
