#!/usr/bin/env node
import { main } from '../dist/doctor/main.js';

process.exitCode = await main(process.argv.slice(2));
