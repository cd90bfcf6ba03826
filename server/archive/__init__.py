"""Archives: what is held of a subject, or of a tenant, as lines of JSON, and back again.

The first line says what follows: format, version, tenant, time. The last is the manifest: how many lines of
each kind there were, and the SHA-256 of all bytes before it. Each line between has a ``kind``:

    settings         of a tenant: what it forgets, how it writes, what it keeps, its quotas
    subject          of a tenant: the lines up to the next such are of this subject; where its stream stands
    memory           as the contract's Memory, with its fields' stamps, accesses, entities and relations
    history          as the contract's HistoryEntry, with its registers; of a deletion with what was deleted
    deletion         the id of a memory that was deleted, and when
    waiting          an edit of a device whose memory is not there yet
    recent_messages  the last messages of a scope, kept for the model that reads the next ones
    request          a request that is acknowledged and not done
    device           of a subject: as the contract's Device
"""
