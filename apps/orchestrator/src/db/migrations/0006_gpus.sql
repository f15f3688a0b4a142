-- Why: which of its host's GPUs an environment holds. Like all that is reserved it is given back with its reservation, whatever ends it.

-- {gpus, profile?, devices: [uuid or pci_bus_id]}; null: none.
alter table environments add column gpus jsonb;
alter table reservations add column gpus jsonb;

create or replace function keep_reservation() returns trigger language plpgsql as $$
begin
  if new.host_id is null or new.state in ('destroyed', 'failed') then
    delete from reservations where environment_uid = new.uid;
  else
    insert into reservations (environment_uid, host_id, tenant_id, cpus, ram_mb, storage_gb, is_paused, gpus)
      values (new.uid, new.host_id, new.tenant_id, new.cpus, new.ram_mb, new.storage_gb, new.state = 'paused', new.gpus)
      on conflict (environment_uid) do update set host_id = excluded.host_id, is_paused = excluded.is_paused, gpus = excluded.gpus
      where (reservations.host_id, reservations.is_paused, reservations.gpus) is distinct from (excluded.host_id, excluded.is_paused, excluded.gpus);
  end if;
  return null;
end $$;

-- `hosts.gpu_capacity` is {gpus?, gpu_kind?, mig_profiles?, gpu_devices?, mig_instances?} from now on; of the first two what was declared stands.
update hosts set declared = declared
  || case when gpu_capacity ? 'gpus' then '{gpus}'::text[] else '{}' end
  || case when gpu_capacity ? 'gpu_kind' then '{gpu_kind}'::text[] else '{}' end;
