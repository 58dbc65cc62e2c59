// Asks a blockd with the types that openapi-typescript makes of docs/openapi.json. There is no cast and no any: what does not compile is a fault of
// the document.
import createClient from "openapi-fetch";
import type { components, paths } from "./schema.js";

type Answer = components["schemas"]["Answer"];
type LiveEntry = components["schemas"]["LiveEntry"];

const [base, token] = process.argv.slice(2);
if (base === undefined || token === undefined) throw new Error("usage: client.js BASE TOKEN");
const blockd = createClient<paths>({ baseUrl: base, headers: { Authorization: `Bearer ${token}` } });

function said(a: Answer): string {
  const verdict: "blocked" | "allowed" | "clear" | "unknown" = a.verdict;
  const line: number | undefined = a.matches[0]?.line;
  return `${a.input} ${verdict} ${line ?? "-"}`;
}

const one = await blockd.GET("/v1/check", { params: { query: { sender: "a+b@bad.example" } } });
if (one.error !== undefined) throw new Error(one.error.detail);
console.log(said(one.data));

const many = await blockd.POST("/v1/check", { body: { senders: ["x@ok.example", { domain: "bad.example" }, { sender: "y@bad.example", client: "192.0.2.1" }] } });
if (many.error !== undefined) throw new Error(many.error.detail);
for (const answer of many.data.results) console.log(said(answer));

const added = await blockd.POST("/v1/entries", { body: { entries: [{ entry: "one.example", why: "a test" }, { entry: "two.example" }, { entry: "three.example", action: "allow" }] } });
if (added.error !== undefined) throw new Error(added.error.detail);
console.log(added.data.results.map((r) => r.result).join(" "));

let cursor: string | undefined;
const entries: LiveEntry[] = [];
do {
  const page = await blockd.GET("/v1/entries", { params: { query: { limit: 2, cursor } } });
  if (page.error !== undefined) throw new Error(page.error.detail);
  entries.push(...page.data.entries);
  cursor = page.data.next;
} while (cursor !== undefined);
for (const e of entries) console.log(`${e.entry} ${e.action} ${e.expires ?? "for good"}`);

const decisions = await blockd.GET("/v1/decisions", { params: { query: { limit: 1, outcome: "refuse" } } });
if (decisions.error !== undefined) throw new Error(decisions.error.detail);
for (const d of decisions.data.decisions) console.log(`${d.outcome} ${d.sender} ${d.list ?? ""}`);

const refused = await blockd.GET("/v1/check", { params: { query: { ip: "nonsense" } } });
console.log(`${refused.response.status} ${refused.error?.status}`);
