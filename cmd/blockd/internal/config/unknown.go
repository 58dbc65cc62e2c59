package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"blockd/internal/spelling"
)

// unknown is what is said of a key that the struct of its table does not have.
func unknown(path string, table reflect.Type) string {
	plain := shownKey(path)
	if instead := goneKeys()[plain]; instead != "" {
		return "is no longer a key: it is always " + instead + "; take the line out"
	}
	if slices.Contains(laterKeys(), plain) {
		return "not in this version of blockd, and nothing would act on it: take it out"
	}
	dir, key := "", plain
	if dot := strings.LastIndexByte(plain, '.'); dot >= 0 {
		dir, key = plain[:dot+1], plain[dot+1:]
	}
	if near := spelling.Nearest(key, keysOf(table)); near != "" && dir == "" && spelling.Distance(key, near) == 1 {
		if f := table.Field(slices.Index(keysOf(table), near)).Type; f.Kind() == reflect.Slice && f.Elem().Kind() == reflect.Struct {
			return fmt.Sprintf("unknown table, did you mean [[%s]], once for each?", near)
		}
	}
	var elsewhere []string // the same key in another [table]
	for other := range reflect.TypeFor[Config]().Fields() {
		inner := other.Type
		if inner.Kind() == reflect.Slice {
			inner = inner.Elem()
		}
		if slices.Contains(keysOf(inner), key) {
			elsewhere = append(elsewhere, tagOf(other)+"."+key)
		}
	}
	if len(elsewhere) > 0 {
		return fmt.Sprintf("unknown key, did you mean %s?", strings.Join(elsewhere, " or "))
	}
	if near := spelling.Nearest(key, keysOf(table)); near != "" {
		return fmt.Sprintf("unknown key, did you mean %s?", dir+near)
	}
	return "unknown key"
}

// laterKeys are the keys that blockd's documents name and that this version
// does not act on. Taking them in silence would promise a protection that is
// not there.
func laterKeys() []string {
	return []string{"index.max_list_bytes", "list.max_list_bytes"}
}

// goneKeys are the keys of earlier versions, each with what stands for it.
func goneKeys() map[string]string {
	const mode = "0660, and socket_group may connect"
	return map[string]string{
		"smtp.soft_errors": "half of smtp.hard_errors", "smtp.max_junk_commands": "five times smtp.hard_errors",
		"smtp.error_delay": "1s", "smtp.min_data_rate": "500 octets a second", "smtp.max_tarpits": "a sixteenth of smtp.max_connections",
		"smtp.command_timeout": "5m", "smtp.stress_timeout": "30s, from 80 % of smtp.max_connections on", "smtp.data_start_timeout": "2m", "smtp.data_timeout": "3m",
		"smtp.session_timeout": "1h", "smtp.tls_timeout": "10s", "smtp.proxy_timeout": "5s",
		"smtp.upstream_connect_timeout": "5s", "smtp.upstream_timeout": "5m", "smtp.upstream_final_timeout": "10m",
		"http.max_connections_per_ip": "half of http.max_connections",
		"milter.socket_mode":          mode, "postfix.socket_mode": mode, "http.socket_mode": mode,
	}
}
