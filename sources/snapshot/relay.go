package snapshot

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"strconv"
	"strings"

	"blockd/internal/minisign"
)

// Relay serves to other nodes what this one has: what the keys have signed, and the objects of these manifests. An object that it has not
// is fetched first. It may be used while the node runs.
func (n *Node) Relay() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			http.Error(w, "want GET", http.StatusMethodNotAllowed)
			return
		}
		path, ok := n.relayed(r.Context(), strings.TrimPrefix(r.URL.Path, "/"))
		if !ok {
			http.NotFound(w, r)
			return
		}
		f, err := os.Open(path)
		if err != nil {
			http.NotFound(w, r)
			return
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil || !info.Mode().IsRegular() {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set("Cache-Control", "max-age=10")
		http.ServeContent(w, r, "", info.ModTime(), f)
	})
}

// relayed is the file of a name of the store; false for every other name.
func (n *Node) relayed(ctx context.Context, name string) (path string, ok bool) {
	plain := strings.TrimSuffix(name, minisign.Suffix)
	switch plain {
	case latestName(n.Channel):
		return n.path(strings.TrimPrefix(name, n.Channel+"/")), true
	case pinName(n.Channel):
		if s := n.Status(); !s.ByChannel { // a pin that is over stays in the folder
			return "", false
		}
		return n.path(strings.TrimPrefix(name, n.Channel+"/")), true
	}
	if number, isManifest := strings.CutPrefix(strings.TrimSuffix(plain, ".json"), manifestsName+"/"); isManifest {
		sequence, err := strconv.ParseInt(number, 10, 64)
		if err != nil || manifestName(sequence) != plain {
			return "", false
		}
		return n.path(name), true
	}
	object, isAnObject := strings.CutPrefix(name, objectName(""))
	if !isAnObject || !isObject(object) {
		return "", false
	}
	path = n.path(objectsName, object)
	if _, err := os.Stat(path); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return path, true
	}
	size, known := n.sizeOf(object)
	if !known {
		return "", false
	}
	path, err := n.fetch(ctx, object, size, kindWhole)
	return path, err == nil
}

// sizeOf is the size of an object of the manifests that are kept; false if none of them has it.
func (n *Node) sizeOf(object string) (int64, bool) {
	all, err := os.ReadDir(n.path(manifestsName))
	if err != nil {
		return 0, false
	}
	for _, e := range all {
		text, err := os.ReadFile(n.path(manifestsName, e.Name()))
		if err != nil || !strings.HasSuffix(e.Name(), ".json") {
			continue
		}
		m, err := ParseManifest(text)
		if err != nil {
			continue
		}
		if size, ok := m.sizes()[object]; ok {
			return size, true
		}
	}
	return 0, false
}

// sizes are the objects of a manifest with their sizes.
func (m *Manifest) sizes() map[string]int64 {
	all := map[string]int64{}
	for _, l := range m.Lists {
		for _, s := range l.Shards {
			all[s.Object] = s.Size
			for _, d := range s.Deltas {
				all[d.Object] = d.Size
			}
		}
	}
	for _, a := range m.Ask {
		all[a.Filter.Object] = a.Filter.Size
	}
	return all
}
