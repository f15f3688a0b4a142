import { AppError } from '@fuse/contract';
import { openObjectStore } from '@fuse/object-store';
import { createLogger, letHeapGrow, waitForStopSignal } from '@fuse/runtime';
import { createOrchestrator } from './app.ts';
import { ConfigError, loadConfig } from './config.ts';

/** Runs until a stop signal. Returns the exit code. */
export async function main(variables: Record<string, string | undefined>): Promise<number> {
  letHeapGrow();
  try {
    const config = loadConfig(variables);
    const log = createLogger({ name: 'orchestrator', level: config.logLevel });
    const stopped = waitForStopSignal();
    await using objectStore = await openObjectStore(config.objectStore);
    await using _orchestrator = await createOrchestrator(config, { log, objectStore });
    log.info({ signal: await stopped }, 'orchestrator stopping');
    return 0;
  } catch (error) {
    if (!(error instanceof ConfigError || error instanceof AppError)) throw error;
    const hint = error instanceof AppError && error.hint !== undefined ? `\nhint: ${error.hint}` : '';
    process.stderr.write(`${error.message}${hint}\n`);
    return 1;
  }
}
