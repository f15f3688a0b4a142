export * from './exec-archive.ts';
export * from './fence.ts';
export * from './gateway.ts';
export * from './guest.ts';
export * from './host.ts';
export * from './tunnel-frames.ts';
