export * from './kept-process.ts';
export * from './postgres.ts';
export * from './temporary-directory.ts';
