// Writes docs/openapi.json: what an orchestrator serves at /openapi.json. Needs the build.
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createOrchestrator, loadOrchestratorConfig } from '../apps/orchestrator/dist/index.js';
import { openObjectStore } from '../packages/object-store/dist/index.js';
import { createLogger } from '../packages/runtime/dist/index.js';

const directory = await mkdtemp(join(tmpdir(), 'fuse-openapi-'));
const config = loadOrchestratorConfig({
  ORCH_LISTEN: '127.0.0.1:0',
  ORCH_EMBEDDED_DATABASE: join(directory, 'database'),
  FUSE_OBJECTS_DIR: join(directory, 'objects'),
});
const log = createLogger({ name: 'openapi', level: 'error' });
const objectStore = await openObjectStore(config.objectStore);
const orchestrator = await createOrchestrator(config, { log, objectStore });
try {
  const response = await fetch(`${orchestrator.url}/openapi.json`);
  const document = await response.json();
  await writeFile(new URL('../docs/openapi.json', import.meta.url), `${JSON.stringify(document, null, 2)}\n`);
} finally {
  await orchestrator[Symbol.asyncDispose]();
  await objectStore[Symbol.asyncDispose]?.();
  await rm(directory, { recursive: true, force: true });
}
