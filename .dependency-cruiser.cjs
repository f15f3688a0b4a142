/** The layout of CONTRIBUTING.md and ARCHITECTURE.md as rules, each named for what it protects. */

const app = '^apps/([^/]+)/';
/** Beside the source and part of no program. */
const test = '[.]test[.]ts$|/test-[^/]+[.]ts$|[.](contract|fixture)[.]ts$|/src/contract/|-testing[.]ts$';

const pureModel = '^apps/orchestrator/src/(environments/environment|runs/run)[.]ts$';

/** @param {string} folder @param {string[]} allowed */
const mayImportOnly = (folder, allowed) => ({
  from: { path: `^${folder}/`, pathNot: test },
  to: { path: '^(apps|packages)/', pathNot: [folder, ...allowed].map((each) => `^${each}/`) },
});

/** @type {import('dependency-cruiser').IConfiguration} */
module.exports = {
  forbidden: [
    {
      name: 'no-cycles',
      comment:
        'Modules that need each other cannot be understood, tested or moved apart. Types alone may go in circles: they are gone at run time.',
      severity: 'error',
      from: {},
      to: { circular: true, viaOnly: { dependencyTypesNot: ['type-only'] } },
    },
    {
      name: 'apps-stand-alone',
      comment: 'Apps meet over HTTP only. apps/local alone composes orchestrator and host agent into one process.',
      severity: 'error',
      from: { path: app, pathNot: '^apps/local/' },
      to: { path: '^apps/', pathNot: '^apps/$1/' },
    },
    {
      name: 'local-composes-the-two-halves-only',
      comment: 'apps/local holds no client.',
      severity: 'error',
      from: { path: '^apps/local/' },
      to: { path: '^apps/', pathNot: '^apps/(local|orchestrator|host-agent)/' },
    },
    {
      name: 'nobody-imports-local',
      comment: 'The composition of everything is the end of every path.',
      severity: 'error',
      from: { pathNot: '^(apps/local|tests|bench)/' },
      to: { path: '^apps/local/' },
    },
    {
      name: 'clients-speak-through-the-sdk',
      comment: 'What the CLI and the dashboard can do, every user of the SDK can do.',
      severity: 'error',
      ...mayImportOnly('apps/(cli|dashboard)', ['packages/(sdk|contract)']),
    },
    {
      name: 'orchestrator-knows-no-vmm',
      comment: 'It reaches hosts through host-protocol.',
      severity: 'error',
      ...mayImportOnly('apps/orchestrator', ['packages/(contract|host-protocol|object-store|runtime)']),
    },
    {
      name: 'host-agent-knows-no-database',
      comment: 'A host keeps its VMs in directories; Postgres belongs to the orchestrator.',
      severity: 'error',
      ...mayImportOnly('apps/host-agent', ['packages/(contract|host-protocol|object-store|runtime)']),
    },
    {
      name: 'contract-stands-on-zod-alone',
      comment: 'Browsers, servers and other languages read it.',
      severity: 'error',
      from: { path: '^packages/contract/src/', pathNot: test },
      to: { pathNot: ['^packages/contract/src/', '^node_modules/zod/'] },
    },
    {
      name: 'sdk-stands-on-contract',
      comment: 'Whoever installs the SDK installs nothing of the server.',
      severity: 'error',
      ...mayImportOnly('packages/sdk', ['packages/contract']),
    },
    {
      name: 'runtime-has-no-domain',
      comment: 'Logger, lifecycle, clock, ids: no word of what Fuse does.',
      severity: 'error',
      ...mayImportOnly('packages/runtime', []),
    },
    {
      name: 'testing-is-for-tests',
      comment: 'Nothing that runs in production may need it.',
      severity: 'error',
      from: { path: '^(apps|packages)/', pathNot: ['^packages/testing/', test] },
      to: { path: '^packages/testing/' },
    },
    {
      name: 'pure-scheduling',
      comment: 'A placement is computed from its arguments: no adapter, no clock.',
      severity: 'error',
      from: { path: '^apps/orchestrator/src/scheduling/', pathNot: test },
      to: {
        path: ['^apps/orchestrator/src/', '^packages/(runtime|object-store)/', '^node_modules/'],
        pathNot: ['^apps/orchestrator/src/scheduling/', '^node_modules/zod/'],
        dependencyTypesNot: ['type-only'],
      },
    },
    {
      name: 'pure-state-transitions',
      comment: 'environment.ts and run.ts say which state follows which: no adapter, no clock.',
      severity: 'error',
      from: { path: pureModel },
      to: {
        path: ['^apps/orchestrator/src/(db|http|hosts|events)/', '^packages/(runtime|object-store)/'],
        dependencyTypesNot: ['type-only'],
      },
    },
    {
      name: 'pure-means-no-io',
      comment: 'Scheduling and state transitions open no file, socket or process.',
      severity: 'error',
      from: { path: ['^apps/orchestrator/src/scheduling/', pureModel], pathNot: test },
      to: { dependencyTypes: ['core'] },
    },
    {
      name: 'stores-know-no-http',
      comment: 'Routes call services, services call stores, stores call the database.',
      severity: 'error',
      from: { path: '^apps/orchestrator/src/.*-store[.]ts$' },
      to: { path: ['^apps/orchestrator/src/http/', '-(routes|service)[.]ts$', '^node_modules/fastify/'] },
    },
    {
      name: 'composition-root-names-the-drivers',
      comment:
        'Only app.ts chooses a VMM; everything else sees the port. Set-up and doctor act before there is an app.',
      severity: 'error',
      from: {
        path: '^apps/host-agent/src/',
        pathNot: ['^apps/host-agent/src/((app|prepare-template)[.]ts|vmm/|doctor/)', test],
      },
      to: { path: '^apps/host-agent/src/vmm/(qemu|firecracker)/' },
    },
    {
      name: 'packages-are-entered-by-their-front-door',
      comment: "A package's index.ts is what it promises; the rest may change.",
      severity: 'error',
      from: { path: '^(apps|packages|tests|bench)/([^/]+)/' },
      to: {
        path: '^packages/[^/]+/(src|dist)/',
        pathNot: ['^packages/$2/', '^packages/[^/]+/(src|dist)/(node/)?index[.](ts|js|d[.]ts)$'],
      },
    },
    {
      name: 'dependencies-are-declared',
      comment: 'What is imported stands in the package.json beside it.',
      severity: 'error',
      from: { path: '^(apps|packages)/', pathNot: test },
      to: { dependencyTypes: ['npm-no-pkg', 'npm-dev', 'unknown', 'undetermined'], pathNot: '^(apps|packages)/' },
    },
    {
      name: 'imports-resolve',
      comment: 'A module that cannot be found is not checked either.',
      severity: 'error',
      from: {},
      to: { couldNotResolve: true },
    },
  ],
  options: {
    doNotFollow: { path: ['node_modules', '/dist/'] },
    exclude: { path: '^(apps|packages)/[^/]+/dist/(?!index)' },
    tsPreCompilationDeps: true,
    tsConfig: { fileName: 'tsconfig.base.json' },
    enhancedResolveOptions: {
      exportsFields: ['exports'],
      conditionNames: ['import', 'types', 'default'],
      extensions: ['.ts', '.mjs', '.js', '.d.ts', '.json'],
    },
    skipAnalysisNotInRules: true,
  },
};
