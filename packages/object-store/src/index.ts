export * from './config.ts';
export * from './content-disposition.ts';
export * from './object-store.ts';
export * from './open.ts';
