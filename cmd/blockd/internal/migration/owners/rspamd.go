package owners

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"blockd/cmd/blockd/internal/migration"
	"blockd/cmd/blockd/internal/migration/internal/original"
	"blockd/lists"
)

// enough is the score at which rspamd refuses a message, if nothing else is configured.
const enough = 15

// RspamdSettings imports a file of rspamd's user settings whose sections refuse or let pass senders of a recipient.
// rspamadm says what the file means.
func RspamdSettings(ctx context.Context, path string, o Options) (*migration.Result, error) {
	r := begin("rspamd", path, o)
	if err := migration.RspamdSettings(ctx, path, r.setting); err != nil {
		return nil, err
	}
	return r.end()
}

// conditions of a section that an entry can be.
var conditions = []string{"from", "ip", "rcpt"}

// known are the members of a section that are no conditions.
var known = []string{"apply", "priority", "symbols", "want_spam", "whitelist", "id", "name"}

func (r *reading) setting(at migration.Place, name string, s map[string]any) error {
	whom, why := words(s["rcpt"]), ""
	action, decides := settingAction(s)
	for member := range s {
		if !slices.Contains(conditions, member) && !slices.Contains(known, member) {
			why = fmt.Sprintf("it has a condition that no entry has: %s", original.Shown(member))
		}
	}
	senders, clients := words(s["from"]), words(s["ip"])
	switch {
	case why != "":
	case !decides:
		why = "it changes scores or symbols, and neither refuses nor lets pass"
	case len(senders) > 0 && len(clients) > 0:
		why = "it wants a sender and a client at once"
	case len(senders)+len(clients) == 0:
		why = "it is about all senders"
	}
	if why != "" {
		return r.lose(at, name, "settings of "+original.Shown(strings.Join(whom, ", ")), "%s", why)
	}
	if len(whom) == 0 {
		whom = []string{""}
	}
	for _, owner := range whom {
		for _, sender := range append(senders, clients...) {
			f, err := r.find(at, name+": "+sender, action.String()+" "+original.Shown(sender)+" for "+original.Shown(owner))
			if err != nil {
				return err
			}
			it, err := rspamdEntry(sender, action)
			if err == nil && !strings.HasPrefix(owner, "/") && (it.Kind == lists.Addr || it.Kind == lists.Domain) {
				r.means(meaning{Finding: f, text: sender, is: asSetting, fate: fateOf(action), weight: priority(s["priority"])}, owner, owner == "")
			}
			switch {
			case err != nil:
				f.Lose("%s", err)
			case strings.HasPrefix(owner, "/"):
				f.Lose("its recipient is an expression")
			case owner == "":
				r.addForAll(f, it)
			default:
				r.add(f, owner, it, "rspamd "+name)
			}
		}
	}
	return nil
}

// rspamdEntry reads a sender or a client of rspamd's settings: user@example.com, @example.com, a local-part, an
// address.
func rspamdEntry(text string, action lists.Action) (lists.Item, error) {
	if strings.HasPrefix(text, "/") {
		return lists.Item{}, fmt.Errorf("an expression; an entry of a mailbox is no pattern")
	}
	if _, err := netip.ParseAddr(text); err != nil && !strings.ContainsAny(text, "@/") {
		text += "@"
	}
	return lists.ParseEntry(text, lists.Settings{Action: action})
}

// settingAction says what a section does to mail.
func settingAction(s map[string]any) (a lists.Action, decides bool) {
	if s["want_spam"] == true || s["whitelist"] == true {
		return lists.Allow, true
	}
	for _, value := range migration.Items(s["apply"]) {
		apply, _ := value.(map[string]any)
		if inner, ok := apply["default"].(map[string]any); ok {
			apply = inner
		}
		if actions, ok := apply["actions"].(map[string]any); ok {
			if n, ok := score(actions["reject"]); ok && n <= 0 {
				return lists.Block, true
			}
		}
		for symbol, value := range apply {
			n, ok := score(value)
			if symbol == "actions" || !ok || !slices.Contains(words(s["symbols"]), symbol) {
				continue
			}
			if n >= enough {
				return lists.Block, true
			} else if n <= -enough {
				return lists.Allow, true
			}
		}
	}
	return 0, false
}

// priority is that of a section: the highest one that matches counts.
func priority(value any) int {
	if n, ok := map[any]int{"high": 3, "medium": 2, "low": 1}[value]; ok {
		return n
	}
	n, _ := score(value)
	return int(n)
}

func score(value any) (float64, bool) {
	n, err := strconv.ParseFloat(fmt.Sprint(value), 64)
	return n, err == nil
}

func words(value any) (all []string) {
	for _, v := range migration.Items(value) {
		switch v := v.(type) {
		case string:
			all = append(all, v)
		case []any:
			all = append(all, words(v)...)
		}
	}
	return all
}
