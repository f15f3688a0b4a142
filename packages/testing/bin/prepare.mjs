#!/usr/bin/env node
/** Builds what the tests need and no registry ships, so that no test waits for it. */
import { ensureVersitygw } from '../dist/index.js';

await ensureVersitygw({ report: (line) => console.log(line) });
