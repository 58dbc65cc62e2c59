package preset

import (
	"fmt"
	"regexp"
	"strings"

	"blockd/lists"
	"blockd/sources/mirror"
)

// spamassassinQuery reads the table of SpamAssassin's sql/README. Only its three documented columns are asked for.
const spamassassinQuery = `select value as entry, preference as action, username as id from userpref
where lower(preference) in ('blacklist_from', 'blocklist_from') and username in ('@GLOBAL', '$GLOBAL')
   or lower(preference) in ('whitelist_from', 'welcomelist_from', 'whitelist_auth', 'welcomelist_auth', 'whitelist_from_spf', 'welcomelist_from_spf',
      'whitelist_from_dkim', 'welcomelist_from_dkim', 'unblacklist_from', 'unblocklist_from')`

func ofSpamAssassin(kind string) (*Preset, error) {
	if err := wantSQL("spamassassin:userpref", kind, "postgres", "mysql", "sqlite"); err != nil {
		return nil, err
	}
	return &Preset{Query: spamassassinQuery, items: directive}, nil
}

// directive reads a row as the line of SpamAssassin's configuration that it stands for.
func directive(row *mirror.Row, subdomains *bool) []lists.Item {
	word := strings.ToLower(row.Action)
	if strings.HasPrefix(word, "un") { // what a user takes back of the list for all
		word = "welcomelist_from"
	}
	return lists.ParseLine("spamassassin", word+" "+row.Entry, lists.Settings{Subdomains: subdomains})
}

// mailcowForAll reads the table of mailcow's init_db.inc.php. mailcow has no list for all of its domains: what every
// active domain refuses is refused for all.
const mailcowForAll = `select f.value as entry, 'blacklist_from' as action, concat('every domain, such as ', min(f.object)) as id
from filterconf f join domain d on d.domain = f.object
where f.` + "`option`" + ` = 'blacklist_from' and d.active = 1
group by f.value having count(distinct d.domain) = (select count(*) from domain where active = 1)
union all
select value, 'whitelist_from', object from filterconf where ` + "`option`" + ` = 'whitelist_from'`

// mailcowForOne reads what is for one domain.
const mailcowForOne = `select value as entry, ` + "`option`" + ` as action, object as id from filterconf
where ` + "`option`" + ` = 'blacklist_from' and object = '%[1]s'
   or ` + "`option`" + ` = 'whitelist_from' and (object = '%[1]s' or object like '%%@%[1]s')`

// domain is what may stand in a query as it is, up to maxDomain octets. (A bound in the expression would cost each start of
// the program 0.3 ms.)
const maxDomain = 253

var domain = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`)

func ofMailcow(name string, has bool, kind string) (*Preset, error) {
	if err := wantSQL("mailcow:filterconf", kind, "mysql"); err != nil {
		return nil, err
	}
	switch {
	case !has:
		return &Preset{Query: mailcowForAll, items: directive}, nil
	case len(name) > maxDomain || !domain.MatchString(name):
		return nil, fmt.Errorf(`want "mailcow:filterconf", or "mailcow:filterconf:DOMAIN" with a domain of mailcow, have %.80q`, name)
	}
	return &Preset{Query: fmt.Sprintf(mailcowForOne, name), items: directive}, nil
}
