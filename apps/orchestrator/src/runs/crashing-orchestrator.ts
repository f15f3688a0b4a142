/**
 * For tests, a program: an orchestrator in a process of its own that stands still at one point of a run's life, to be killed there. Its
 * argument is JSON: `config`, and `at`, the checkpoint. Prints its URL, then `stopped`.
 */
import { openObjectStore } from '@fuse/object-store';
import { createLogger } from '@fuse/runtime';
import { z } from 'zod';
import { createOrchestrator } from '../app.ts';
import type { OrchestratorConfig } from '../config.ts';
import type { Checkpoint } from './driving/drive.ts';

const BytesAsJson = z.object({ type: z.literal('Buffer'), data: z.array(z.number()) });
const { config, at } = JSON.parse(process.argv[2] ?? '', (_, value) => {
  const bytes = BytesAsJson.safeParse(value);
  return bytes.success ? Buffer.from(bytes.data.data) : value;
}) as { config: OrchestratorConfig; at: Checkpoint };
const log = createLogger({ name: 'crashing', level: 'silent' });
const objectStore = await openObjectStore(config.objectStore);
const orchestrator = await createOrchestrator(config, {
  log,
  objectStore,
  checkpoint: async (point) => {
    if (point !== at) return;
    process.stdout.write('stopped\n');
    await new Promise(() => {});
  },
});
process.stdout.write(`${orchestrator.url}\n`);
