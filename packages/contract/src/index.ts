export * from './environment.ts';
export * from './errors.ts';
export * from './frames.ts';
export * from './host.ts';
export * from './primitives.ts';
export * from './run.ts';
export * from './snapshot.ts';
