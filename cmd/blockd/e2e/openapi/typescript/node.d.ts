// What client.ts needs of Node.js, so that no package of types is needed.
declare const process: { argv: string[] };
