#!/usr/bin/env node
import { prepareTemplate } from '../dist/prepare-template.js';

const abort = new AbortController();
for (const name of ['SIGINT', 'SIGTERM']) process.once(name, () => abort.abort(new Error(name)));
try {
  process.stdout.write(`${JSON.stringify(await prepareTemplate(process.env, abort.signal))}\n`);
} catch (error) {
  process.stderr.write(`${error.stack}\n`);
  process.exitCode = 1;
}
