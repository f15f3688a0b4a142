export { createHostAgent, type HostAgent, type HostAgentDeps } from './app.ts';
export {
  ConfigError,
  DEFAULT_STORAGE_RESERVE_MB,
  defaultCapacity,
  type HostAgentConfig,
  loadConfig as loadHostAgentConfig,
} from './config.ts';
export { type AssetDamage, findAssetDamage } from './images/asset-damage.ts';
export { loadAssets } from './images/assets.ts';
export { main } from './main.ts';
