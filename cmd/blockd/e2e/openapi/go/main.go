// Command client asks a blockd with what oapi-codegen makes of docs/openapi.json: the package api beside it, which the test writes.
// There is no conversion of an answer: what does not compile is a fault of the document.
package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"os"

	"blockd/cmd/blockd/e2e/openapi/go/api"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 3 {
		log.Fatal("usage: client BASE TOKEN")
	}
	ctx := context.Background()
	blockd, err := api.NewClientWithResponses(os.Args[1], api.WithRequestEditorFn(func(_ context.Context, r *http.Request) error {
		r.Header.Set("Authorization", "Bearer "+os.Args[2])
		return nil
	}))
	if err != nil {
		log.Fatal(err)
	}
	sender := "x@bad.example"
	one, err := blockd.CheckWithResponse(ctx, &api.CheckParams{Sender: &sender})
	if err != nil || one.JSON200 == nil {
		log.Fatal(err, one)
	}
	fmt.Println(one.JSON200.Input, one.JSON200.Verdict == api.AnswerVerdictBlocked, one.JSON200.Matches[0].Line)

	var plain, name api.Question
	if err := plain.FromQuestion0("x@ok.example"); err != nil {
		log.Fatal(err)
	}
	if err := name.FromQuestion3(api.Question3{Domain: "bad.example"}); err != nil {
		log.Fatal(err)
	}
	many, err := blockd.CheckManyWithResponse(ctx, &api.CheckManyParams{}, api.CheckManyJSONRequestBody{Senders: []api.Question{plain, name}})
	if err != nil || many.JSON200 == nil {
		log.Fatal(err, many)
	}
	for _, answer := range many.JSON200.Results {
		fmt.Println(answer.Input, answer.Verdict)
	}
	limit := 2
	params := api.EntriesParams{Limit: &limit}
	for more := true; more; {
		page, err := blockd.EntriesWithResponse(ctx, &params)
		if err != nil || page.JSON200 == nil {
			log.Fatal(err, page)
		}
		for _, e := range page.JSON200.Entries {
			fmt.Println(e.Entry, e.Action)
		}
		params.Cursor = page.JSON200.Next
		more = params.Cursor != nil
	}
	wrong := "nonsense"
	refused, err := blockd.CheckWithResponse(ctx, &api.CheckParams{Ip: &wrong})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(refused.StatusCode(), refused.ApplicationproblemJSON400.Status)
}
