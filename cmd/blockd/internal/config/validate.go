package config

import (
	"fmt"
	"reflect"
)

// Validate reports every fault of c that can be seen without looking at the
// machine: no file is opened and no name resolved.
func (c Config) Validate() Faults {
	var f Faults
	for field, value := range reflect.ValueOf(c).Fields() {
		if value.Kind() == reflect.Struct {
			f.wants(tagOf(field), value)
			continue
		}
		for i := range value.Len() {
			f.wants(fmt.Sprintf("%s[%d]", tagOf(field), i), value.Index(i))
		}
	}
	c.Index.validate(&f)
	c.SMTP.validate(&f)
	c.validateForeign(&f)
	c.HTTP.validate(&f)
	c.Health.validate(&f)
	c.validateReceipts(&f)
	c.validateReport(&f)
	c.Notify.validate(&f)
	c.Milter.validate(&f)
	c.Postfix.validate(&f)
	c.validateDNS(&f)
	c.RESP.validate(&f)
	c.Auth.validate(&f)
	names, copies := map[string]bool{}, map[string]string{}
	for i, l := range c.Lists {
		l.validate(&f, fmt.Sprintf("list[%d]", i), names)
		c.validateRemote(l, &f, fmt.Sprintf("list[%d]", i), copies)
		l.validateSource(&f, fmt.Sprintf("list[%d]", i), copies)
	}
	c.validateRESPNames(&f)
	c.validateLive(&f)
	c.History.validate(&f)
	c.Audit.validate(&f)
	c.validateFleet(&f)
	c.validatePublish(&f)
	c.validatePolicies(&f)
	c.validateRecipients(&f)
	c.validateJunk(&f)
	c.validateFilters(&f)
	c.validateRefusal(&f)
	c.validateClientProof(&f)
	c.validateQuarantine(&f)
	if !c.SMTP.Open() && !c.Milter.Open() && !c.Postfix.Open() && !c.RESP.Open() && !c.DNS.Open() && c.HTTP.Listen == "" {
		f.add("smtp.listen", "no door is open: every listen is empty")
	}
	return f
}
