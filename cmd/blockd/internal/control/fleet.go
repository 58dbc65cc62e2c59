package control

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"blockd/cmd/blockd/internal/config"
	"blockd/doors/httpapi"
	"blockd/internal/term"
	"blockd/records/history"
	"blockd/sources/roster"
)

// FleetView asks the daemon how all nodes are.
func FleetView(ctx context.Context, c config.Config) (v httpapi.FleetView, err error) {
	if !c.Others() {
		return v, errors.New("other nodes are not seen from here: ask on the publisher ([publish]), or where live.shared is set")
	}
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	return v, Ask(ctx, c, http.MethodGet, "/v1/fleet", nil, &v)
}

// NodeDecision is a decision of a node.
type NodeDecision struct {
	Node string `json:"node"`
	history.Record
}

// askedAtOnce is how many nodes are asked at a time, and nodeTimeout how long one may take.
const (
	askedAtOnce = 16
	nodeTimeout = 10 * time.Second
)

// FleetDecisions asks all nodes for past decisions: the newest first, as many as limit says. Untold are the nodes that have not answered, with
// the reason; more is set if there are, or may be, further ones.
func FleetDecisions(ctx context.Context, c config.Config, ask url.Values) (found []NodeDecision, more bool, untold []string, err error) {
	q, err := httpapi.ParseDecisionQuery(ask)
	if err != nil {
		return nil, false, nil, err
	}
	v, err := FleetView(ctx, c)
	if err != nil {
		return nil, false, nil, err
	}
	if v.Fault != "" {
		untold = append(untold, "nodes that are not known: "+v.Fault)
	}
	token := os.Getenv(tokenVariable)
	if token == "" && c.Fleet.TokenFile != "" {
		if token, err = httpapi.ReadToken(c.Fleet.TokenFile); err != nil {
			return nil, false, nil, fmt.Errorf("fleet.token_file: %w", err)
		}
	}
	ask.Set("limit", strconv.Itoa(q.Limit))
	var mu sync.Mutex
	var all sync.WaitGroup
	turns := make(chan struct{}, askedAtOnce)
	for _, n := range v.Nodes {
		all.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			list, err := decisionsOf(ctx, c, n, token, ask)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				untold = append(untold, n.Node+": "+err.Error())
				return
			}
			more = more || list.More
			for _, r := range list.Decisions {
				found = append(found, NodeDecision{n.Node, r})
			}
		})
	}
	all.Wait()
	slices.SortStableFunc(found, func(a, b NodeDecision) int { return cmp.Or(b.Time.Compare(a.Time), cmp.Compare(a.Node, b.Node)) })
	slices.Sort(untold)
	if len(found) > q.Limit {
		found, more = found[:q.Limit], true
	}
	return found, more, untold, nil
}

// decisionsOf asks one node.
func decisionsOf(ctx context.Context, c config.Config, n roster.Report, token string, ask url.Values) (list httpapi.DecisionList, err error) {
	if n.Node == c.NodeName() {
		return Decisions(ctx, c, ask)
	}
	if n.Address == "" {
		return list, errors.New("it does not say where it can be asked (fleet.address)")
	}
	if !c.Fleet.MayAsk(n.Address) { // neither a token nor a person's address goes to where a node only says it is
		return list, fmt.Errorf("it says that it is at %s, which fleet.ask does not name", term.Visible(n.Address))
	}
	ctx, cancel := context.WithTimeout(ctx, nodeTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(n.Address, "/")+"/v1/decisions?"+query(ask), nil)
	if err != nil {
		return list, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	if err != nil {
		return list, Cause(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden {
		return list, fmt.Errorf("it wants a token that may read: put one into fleet.token_file, or into %s", tokenVariable)
	}
	if resp.StatusCode != http.StatusOK {
		return list, fmt.Errorf("it says %s", resp.Status)
	}
	return list, json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(&list)
}
