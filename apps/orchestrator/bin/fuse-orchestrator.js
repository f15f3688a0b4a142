#!/usr/bin/env node
import { existsSync } from 'node:fs';

const built = new URL('../dist/main.js', import.meta.url);
if (!existsSync(built)) {
  process.stderr.write('the orchestrator is not built yet\nhint: run `npm run build` in the project first\n');
  process.exit(1);
}
const { main } = await import(built.href);
process.exitCode = await main(process.env);
