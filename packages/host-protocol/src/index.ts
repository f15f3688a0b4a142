export * from './guest.ts';
export * from './host.ts';
