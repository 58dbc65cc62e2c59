package daemon

import (
	"context"

	"blockd/cmd/blockd/internal/config"
	"blockd/sources/mirror"
)

// QueryTables gives the rows of a query in a database of a kind ("postgres", "mysql" or "sqlite"). The query gives the columns owner, entry,
// action and id. No error has anything of the dsn.
func QueryTables(ctx context.Context, kind, dsn, query string, yield func(owner string, row mirror.Row) error) error {
	source, err := openDriver(config.List{Name: "import", Source: &config.Source{Kind: kind, Query: query, Changes: "none"}}, dsn)
	if err != nil {
		return err
	}
	defer source.Close()
	_, err = source.All(ctx, func(row mirror.Row) error {
		owner := row.Owner
		row.Owner = ""
		return yield(owner, row)
	})
	return err
}
