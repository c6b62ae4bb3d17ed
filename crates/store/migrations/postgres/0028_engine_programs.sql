-- The version of the program of a linked engine or relay, as it reports it.
ALTER TABLE link_engines ADD COLUMN program_version TEXT COLLATE "C";
