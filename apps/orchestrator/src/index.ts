export { createOrchestrator, type Orchestrator, type OrchestratorDeps } from './app.ts';
export {
  ConfigError,
  DEFAULT_PORT,
  loadConfig as loadOrchestratorConfig,
  type OrchestratorConfig,
  packageVersion,
} from './config.ts';
export { main } from './main.ts';
export { defaultIntervals, type ReconcilerIntervals } from './reconciling/reconciler.ts';
export { defaultRunConfig, type RunConfig } from './runs/run-config.ts';
