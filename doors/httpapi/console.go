package httpapi

import (
	"embed"
	"net/http"
	"path"
	"strings"
)

// assets are the console's page and the files that it loads. They are served without
// a build.
//
//go:embed console
var assets embed.FS

// consolePolicy lets the page load the files beside it and ask this door. It forbids
// a script in the page itself or from elsewhere, a frame around the page, and
// text that becomes HTML.
const consolePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// consoleTypes are the media types of assets. The system's table may have others.
var consoleTypes = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
}

// isConsole reports whether a request is for the page or a file that it loads. Every caller
// may have those: a browser that opens a page sends no token, and the page has no secret.
func isConsole(r *http.Request) bool {
	return r.URL.Path == "/" && wantsPage(r) || strings.HasPrefix(r.URL.Path, "/console/")
}

// wantsPage tells a browser from a program.
func wantsPage(r *http.Request) bool { return strings.Contains(r.Header.Get("Accept"), "text/html") }

// home answers / with the console for browsers, and with a list of what there is for
// programs.
func home(programs http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Vary", "Accept")
		if wantsPage(r) {
			asset(w, "console/page.html")
			return
		}
		programs(w, r)
	}
}

// console serves the files that the page loads.
func console(w http.ResponseWriter, r *http.Request) {
	asset(w, strings.TrimPrefix(r.URL.Path, "/"))
}

func asset(w http.ResponseWriter, name string) {
	content, err := assets.ReadFile(name)
	if err != nil {
		fail(w, http.StatusNotFound, "no such file of the console")
		return
	}
	h := w.Header()
	h.Set("Content-Type", consoleTypes[path.Ext(name)])
	h.Set("Content-Security-Policy", consolePolicy)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("X-Frame-Options", "DENY") // for browsers before frame-ancestors
	w.Write(content)
}
