package main

// Which file systems are over a network, by the magic numbers of statfs(2).

import "golang.org/x/sys/unix"

// networkFS names the network file system that dir lies on, "" for a local one. FUSE counts as one: sshfs and kin cannot be told apart
// from local ones, and their locks are not to be trusted.
func networkFS(dir string) (string, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return "", err
	}
	switch uint32(st.Type) {
	case unix.NFS_SUPER_MAGIC:
		return "NFS", nil
	case 0xff534d42, 0xfe534d42: // CIFS_SUPER_MAGIC, SMB2_SUPER_MAGIC
		return "SMB", nil
	case unix.SMB_SUPER_MAGIC:
		return "SMB", nil
	case unix.FUSE_SUPER_MAGIC:
		return "FUSE", nil
	case unix.V9FS_MAGIC:
		return "9P", nil
	case unix.AFS_SUPER_MAGIC:
		return "AFS", nil
	case 0x00c36400: // CEPH_SUPER_MAGIC
		return "Ceph", nil
	case 0x0bd00bd0: // LUSTRE_SUPER_MAGIC
		return "Lustre", nil
	case 0x47504653: // GPFS
		return "GPFS", nil
	}
	return "", nil
}
