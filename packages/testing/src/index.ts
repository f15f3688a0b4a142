export * from './free-port.ts';
export * from './kept-process.ts';
export * from './leaks.ts';
export * from './postgres.ts';
export * from './processes.ts';
export * from './s3-server.ts';
export * from './temporary-directory.ts';
export * from './versitygw.ts';
