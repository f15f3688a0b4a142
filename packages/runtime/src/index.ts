export * from './clock.ts';
export * from './garbage-collection.ts';
export * from './ids.ts';
export * from './lifecycle.ts';
export * from './logger.ts';
export * from './memory-socket.ts';
export * from './rereading.ts';
export * from './wait.ts';
