-- An index of the pieces of three characters in the text of logs, for searching. Its extensions come with
-- PostgreSQL; where this role may not create them or the server has none of them, logs are searched
-- without an index, as before.
DO $$
BEGIN
    CREATE EXTENSION IF NOT EXISTS pg_trgm;
    CREATE EXTENSION IF NOT EXISTS btree_gin;
    CREATE INDEX logs_search ON logs USING gin (project_id, search gin_trgm_ops);
EXCEPTION
    WHEN insufficient_privilege OR undefined_file OR feature_not_supported OR undefined_object THEN
        RAISE WARNING 'logs are searched without an index: %', SQLERRM;
END
$$;
