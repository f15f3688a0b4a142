#!/usr/bin/python3
"""A stand-in for Firecracker's jailer and, in its place in the chroot and under its user, for Firecracker.

The jailer's command line is taken as strictly as the real one takes it, and what it leaves is the same: a chroot with the program, devices' directories and /run, a process with that
root, user and limits, and its number in <program>.pid. The API is answered by the test (test-firecracker.ts), which tells this process over a socket beside the program what to do to
files and memory, so that this happens with the rights that Firecracker would have.
"""
import json, mmap, os, re, resource, shutil, socket, sys

VERSION = 'v1.17.0'


def jailer_arguments(argv):
    options, limits, flags, rest = {}, {}, set(), []
    while argv:
        name = argv.pop(0)
        if name == '--':
            rest = argv
            break
        if name in ('--new-pid-ns', '--daemonize'):
            flags.add(name)
        elif name == '--resource-limit':
            key, value = argv.pop(0).split('=')
            if key not in ('fsize', 'no-file'):
                sys.exit('Invalid resource argument')
            limits[key] = int(value)
        elif name in ('--id', '--exec-file', '--uid', '--gid', '--chroot-base-dir', '--netns', '--cgroup-version', '--parent-cgroup'):
            if name in options:
                sys.exit(f'The argument {name!r} was provided more than once.')
            options[name] = argv.pop(0)
        else:
            sys.exit(f"Found argument '{name}' which wasn't expected, or isn't valid in this context.")
    for name in ('--id', '--exec-file', '--uid', '--gid'):
        if name not in options:
            sys.exit(f"Argument '{name}' required, but not found.")
    if not re.fullmatch(r'[A-Za-z0-9-]{1,64}', options['--id']):
        sys.exit('Invalid instance ID: Invalid char in instance ID')
    return options, limits, flags, rest


def jail(argv):
    options, limits, flags, rest = jailer_arguments(argv)
    program = os.path.realpath(options['--exec-file'])
    name = os.path.basename(program)
    base = os.path.realpath(options['--chroot-base-dir'])
    root = os.path.join(base, name, options['--id'], 'root')
    uid, gid = int(options['--uid']), int(options['--gid'])
    os.makedirs(root, exist_ok=True)
    shutil.copy(program, os.path.join(root, name))
    for folder in ('', 'dev', 'dev/net', 'run'):
        os.makedirs(os.path.join(root, folder), exist_ok=True)
        os.chmod(os.path.join(root, folder), 0o700)
        os.chown(os.path.join(root, folder), uid, gid)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits.get('no-file', 2048),) * 2)
    if 'fsize' in limits:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limits['fsize'],) * 2)
    order = json.dumps({
        'id': options['--id'], 'root': root, 'name': name, 'uid': uid, 'gid': gid, 'netns': options.get('--netns'),
        'flags': sorted(flags), 'limits': limits, 'args': rest, 'control': os.path.join(os.path.dirname(program), 'control.sock'),
    })
    ready, tell = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(ready)
        os.setsid()
        os.set_inheritable(tell, True)
        os.execv(sys.executable, [f'/{name}', os.path.abspath(__file__), 'inner', str(tell), order])
    os.close(tell)
    said = os.read(ready, 1)
    if said != b'y':
        sys.exit('the program did not start')
    with open(os.path.join(root, f'{name}.pid'), 'x') as file:
        file.write(str(child))


def inner(tell, order):
    control = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    control.connect(order['control'])
    os.chroot(order['root'])
    os.chdir('/')
    os.setgroups([])
    os.setgid(order['gid'])
    os.setuid(order['uid'])
    stream = control.makefile('rw')
    print(json.dumps({**order, 'pid': os.getpid()}), file=stream, flush=True)
    stream.readline()
    os.write(tell, b'y')
    os.close(tell)
    memory = None
    for line in stream:
        command = json.loads(line)
        try:
            result = None
            if command['do'] == 'exit':
                print(command['says'], file=sys.stderr, flush=True)
                os._exit(command['code'])
            elif command['do'] == 'read':
                with open(command['path'], 'rb') as file:
                    result = os.fstat(file.fileno()).st_size
            elif command['do'] == 'open':
                os.close(os.open(command['path'], os.O_RDWR | os.O_NONBLOCK))
            elif command['do'] == 'write':
                with open(command['path'], 'r+b', buffering=0) as file:
                    file.write(command['text'].encode())
            elif command['do'] == 'boot':
                memory = mmap.mmap(-1, command['bytes'])
                memory[0:6] = b'booted'
            elif command['do'] == 'load':
                with open(command['path'], 'rb') as file:
                    memory = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
                at, text = command['generation']
                memory[at:at + 16] = text.encode()
            elif command['do'] == 'poke':
                memory[command['at']:command['at'] + len(command['text'])] = command['text'].encode()
            elif command['do'] == 'peek':
                result = memory[command['at']:command['at'] + command['length']].decode('latin1')
            elif command['do'] == 'save':
                with open(command['device'], 'wb') as file:
                    file.write(command['state'].encode())
                with open(command['memory'], 'wb') as file:
                    file.truncate(len(memory))
                    if command['whole']:
                        file.write(memory)
            elif command['do'] == 'fill':
                kept = os.open(command['path'], os.O_RDWR | os.O_CREAT)
                os.posix_fallocate(kept, 0, command['bytes'])
                if command.get('hide'):
                    os.unlink(command['path'])
                else:
                    os.close(kept)
            elif command['do'] == 'mkdir':
                os.mkdir(command['path'])
            elif command['do'] == 'plant':
                path = command['path']
                if os.path.lexists(path):
                    shutil.rmtree(path) if os.path.isdir(path) and not os.path.islink(path) else os.unlink(path)
                os.symlink(command['target'], path)
            answer = {'result': result}
        except Exception as error:
            answer = {'error': str(error)}
        print(json.dumps(answer), file=stream, flush=True)


if sys.argv[1:] == ['--version']:
    print(f'{os.path.basename(sys.argv[0]).capitalize()} {VERSION}\n')
elif sys.argv[1:] == ['--snapshot-version']:
    print('v11.0.0')
elif sys.argv[1] == 'inner':
    inner(int(sys.argv[2]), json.loads(sys.argv[3]))
else:
    jail(sys.argv[1:])
